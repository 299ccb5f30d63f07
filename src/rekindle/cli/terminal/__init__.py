"""What all output on a terminal needs: safe text, colour, and a pager."""
