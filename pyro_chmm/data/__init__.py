"""What the user brings: corpora, their formats, where they are found, and how labels are scored."""
