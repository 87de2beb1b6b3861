"""Networks with credits: flits, virtual channels and routers, without loss and deadlock."""
