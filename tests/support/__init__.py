"""What several tests use: clips, cameras, brokers, servers, scenes, and pipelines of one stage."""
