"""The pages about the gateway, and the changes that its operator can make there."""
