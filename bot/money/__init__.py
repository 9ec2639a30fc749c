"""What models cost: what they used is counted, and priced, shown and limited here."""
