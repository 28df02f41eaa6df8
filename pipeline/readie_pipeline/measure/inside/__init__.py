"""Programs that run under the measured interpreter, whichever it is: standard library only."""
