"""The files of state: on local disks, S3, and places that fsspec reaches."""
