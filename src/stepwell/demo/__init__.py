"""``stepwell demo``: onboardings by the hundred, a worker that is killed, a ledger that proves what happened.

``onboarding`` is the workflow, ``records`` are the tables, ``mail`` is the gateway, ``app`` is what a worker
loads; ``runner`` tells the story and ``proof`` reads the ledger.
"""
