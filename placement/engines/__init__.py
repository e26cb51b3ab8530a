"""Plans in the forms that serving engines load: writers, readers, checks; engines are listed in ``registry``."""
