"""What is kept outside memory: blobs, and the folders that servers keep them in."""
