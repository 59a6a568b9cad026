"""What a machine family needs: capabilities, tile instructions, legalisation, spelling, tool chain. Not here: its numbers (hw/)."""
