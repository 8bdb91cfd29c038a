"""Object stores: buckets of S3 and of its like, reached by obstore."""
