"""What the files of a project say about it, and what kind of app it is once it is built."""
