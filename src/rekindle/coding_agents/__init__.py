"""Other coding agents on this machine: install Rekindle into them, and diagnose the installation.

agents/<name>.py    what each agent reads, and what Rekindle adds to it
install.py          plan a change of their files, show it, apply it, undo it
resume.py           plan how a session goes on in its own agent, or in another one
doctor.py           check what is installed, imported and about to be deleted
"""
