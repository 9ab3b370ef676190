"""Commands of the Spark pipeline: archive, audit."""
