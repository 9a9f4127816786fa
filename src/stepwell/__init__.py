"""Durable workflows in the SQL database that your application already has."""

__all__: list[str] = []
