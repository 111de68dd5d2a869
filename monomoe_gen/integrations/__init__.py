"""The layer inside other people's servers. Each module imports its server only when it is used."""
