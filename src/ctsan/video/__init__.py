"""From video files to frames, feature maps and a feature store."""
