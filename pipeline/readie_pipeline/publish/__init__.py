"""Puts generations into a bucket, so that no reader ever sees half of one, and takes old ones out."""
