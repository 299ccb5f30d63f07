"""Background processes that outlive the program that started them."""
