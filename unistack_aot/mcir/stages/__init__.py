"""What may stand in a program at each stage of its making, one file per stage.."""
