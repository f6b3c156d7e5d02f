"""The PostgreSQL wire protocol, version 3.0: codec, connections, encoded answers and the listener."""
