"""What importing costs: each module in a fresh process of the interpreter that will run it."""
