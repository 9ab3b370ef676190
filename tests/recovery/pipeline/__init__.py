"""The data pipeline, on one Spark session that all these tests share."""
