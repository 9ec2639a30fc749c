"""`web_fetch` and `web_search`: what the web says, which is always somebody else's words."""
