"""The explorer: measures and recorded sentences as an interactive page."""
