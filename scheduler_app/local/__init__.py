"""Everything that `make demo`, `make test` and `make up` start on this machine, and how it is stopped again.

Imports no Django: the services must run before settings can be read.
"""
