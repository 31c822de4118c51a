"""Published results about K/V reuse and routing, run again through the production nodes."""
