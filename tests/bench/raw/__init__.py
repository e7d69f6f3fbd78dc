"""What each part of the chain can do alone: the limits that our figures are held against."""
