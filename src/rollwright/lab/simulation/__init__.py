"""What simulations measure, setups and schedulers by name, and pictures of several side by side."""
