"""What all tests share: JVMs that are soon ready."""

import os

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""What a JVM compiles at length, and collects in threads, pays only for programs that run longer than a test."""
