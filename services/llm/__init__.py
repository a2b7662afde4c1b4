"""The rules of the LLM proxy: which upstream a call goes to and with which key, who calls, what
that may cost, and what it did cost.

It opens no sockets: the guest gateway forwards bytes, asks here before a call and tells at its end.
A call goes like this: 1. `callers.find_caller` says who it is. 2. `allowed_calls.admit` says
whether there may be any. 3. `routing.route` says where it may go. 4. `call_rows.begin` counts it
against the limits and keeps a row. 5. `call_rows.report_progress` tells every few seconds which
calls are alive. 6. `call_rows.finish` writes what it used, once.
"""
