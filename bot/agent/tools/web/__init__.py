"""`web_search`: what the web answers, which is always somebody else's words."""
