package com.example;

/** A POJO of people's state; snapshots of before its migration have no points. */
public class Profile {
    public int age;
    public String city;
    public int points;
}
