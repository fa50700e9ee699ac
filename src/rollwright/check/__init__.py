"""The offline checker: proves that a dump of rollouts is right, or says where it is wrong."""
