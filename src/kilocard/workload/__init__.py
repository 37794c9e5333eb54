"""What is asked, and when: arrivals, lengths, sessions, traces. One form for load tester and simulator. Pure."""
