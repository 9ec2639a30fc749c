"""Everything of one person: taken along in one file (export), and removed for good (erase)."""
