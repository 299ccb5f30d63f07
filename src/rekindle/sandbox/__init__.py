"""Confine commands and code: the kernel decides what they can read, write and reach.

sandbox.py           one sandbox: wraps a command line so that it runs confined
detection.py         find what works on this machine: bubblewrap, Landlock, or nothing
file_view.py         which files a command sees, and how
protected_files.py   the files that hold secrets, and those that run code later
bubblewrap.py        the command line of bubblewrap
landlock.py          the command line of our own launcher
landlock_launcher.pl restrict itself with Landlock and seccomp, then execute the command
landlock_launcher.py the same where there is no Perl
call_filter.py       the system calls that the launcher refuses
launch_files.py      undo what a command did to files that run code later
workspace_lock.py    what background commands of a workspace may not change
"""
