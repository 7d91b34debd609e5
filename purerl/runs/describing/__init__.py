"""What a run is to do, checked before anything compiles, and the files and folders that hold it."""
