"""Multi-turn conversations against servers of inference engines, with and without
a pool behind them.

    workload.py    the conversations: which tokens, to which server, in which turn
    client.py      a request as it is seen by its client: when each token came
    engines.py     what differs between vLLM and llama.cpp
    run.py         a variant's conversations, as lines of JSON
    report.py      those of several variants, as tables
    serve.py       a server with the connector of a variant, on a machine without GPU
    models.py      and a model for it

`python -m multiturn` says how they are called. No dependency beyond the standard
library, but serve and model, which need what the engine itself does.
"""
