"""The live explorer: a local web server around one model."""
