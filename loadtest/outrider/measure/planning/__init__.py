"""What a real mesh costs, a simulator of meshes with these costs, and plans found by it."""
