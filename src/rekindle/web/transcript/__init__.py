"""The transcript of one session as pages of HTML, and live as it grows."""
