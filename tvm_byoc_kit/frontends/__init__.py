"""What imports a model into Relax, one module per framework."""
