"""Side jobs: each uses the core for a question of its own, and the core uses none of them."""
