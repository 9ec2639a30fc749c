-- Memory is searched by meaning too where this is there.
CREATE EXTENSION IF NOT EXISTS vector;
