"""Files where state is kept: on local disks, S3, and what fsspec reaches."""
