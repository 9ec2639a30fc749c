"""Memory: spaces of Markdown on disk, which people read and edit too."""
