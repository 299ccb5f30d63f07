"""What is sent besides answers: files, and notices that an answer is on its way."""
