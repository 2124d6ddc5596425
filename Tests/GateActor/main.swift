import Desktop
