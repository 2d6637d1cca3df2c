"""`make demo`: the main job with crashes, watched on a board and judged at the end."""
