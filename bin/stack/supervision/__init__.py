"""How the processes of a one-box stack are started, confined and kept alive: supervisord, its two
plug-ins, and what a process does before its program begins. Which processes there are says the
Procfile; what each is told and may do, config/processes.py."""
