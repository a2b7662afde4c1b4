"""What an operator is shown of nodes, operations, sandboxes and apps, and why something waits.

It reads every subject and changes none. It decides which fields an operator sees, none of them a
secret, and says causes in sentences. The commands that show this are in `app/operator`; what they
change, they change by the rules of each subject.
"""
