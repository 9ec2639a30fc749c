"""Moving everything from a storage folder into a PostgreSQL, and back again.

The place it comes from is only read; the other one is marked incomplete until all is compared.
"""
